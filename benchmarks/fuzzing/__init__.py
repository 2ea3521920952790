"""The parts of `benchmarks/fuzz.py`: what is attacked, and how outcomes are judged."""

from fuzzing import checkpoints, data, models
from fuzzing.engine import Section

SECTIONS: dict[str, Section] = {module.SECTION.name: module.SECTION for module in (models, checkpoints, data)}
