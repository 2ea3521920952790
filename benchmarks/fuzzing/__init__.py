"""The parts of `benchmarks/fuzz.py`: what is attacked, and how outcomes are judged."""

from fuzzing import api, checkpoints, data, imports, models, processes, text
from fuzzing.engine import Section

_FILES = (models.SECTION, checkpoints.SECTION, data.SECTION, imports.SECTION, text.CSV, text.JSON)
_OTHERS = (api.SECTION, processes.KILLS, processes.DISK, processes.WRITERS)
SECTIONS: dict[str, Section] = {section.name: section for section in (*_FILES, *_OTHERS)}
