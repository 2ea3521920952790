"""The parts of `benchmarks/fuzz.py`: what is attacked, and how outcomes are judged."""

from fuzzing import api, checkpoints, data, models, text
from fuzzing.engine import Section

_ALL = (models.SECTION, checkpoints.SECTION, data.SECTION, text.CSV, text.JSON, api.SECTION)
SECTIONS: dict[str, Section] = {section.name: section for section in _ALL}
