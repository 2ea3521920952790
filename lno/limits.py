"""Limits on what files may claim, in one place.

A file is read only if it stays within them, so that a damaged or hostile one is refused before it
takes all memory. Honest files stay far below. The sizes of a model have limits of their own, in
`ModelConfig.limits`; its weights must be in the file.
"""

MEMBERS = 1024  # of an ensemble
GRID_POINTS = 10**8  # of the grid that a label or a spec names
QUERY_SET = 10**9  # query points that are predicted together
STEPS = 10**12  # of a training run

HEADER_BYTES = 100_000_000  # of a safetensors file: names, shapes and metadata
JSON_BYTES = 2**28  # of a JSON file
JSON_DEPTH = 200  # levels of lists and objects; each fine-tuning adds one to the provenance
JSON_INTEGER = 2**63  # whole numbers lie below; larger ones are no measurement

# Values of an HDF5 file in memory: at most `HDF5_RATIO` times the size of the file, for files that
# compress very well; small data may compress better than that.
HDF5_RATIO = 200
HDF5_SMALL_BYTES = 2**28
HDF5_EMPTY_ROWS = 10**6  # along an axis that no stored value backs

# Arrays of files of other programs: at most `IMPORT_RATIO` times what the file holds for them, for
# fields that compress very well; small arrays may compress better than that.
IMPORT_RATIO = 200
IMPORT_SMALL_BYTES = 2**24
IMPORT_VARIABLES = 10_000  # of one file
NPY_HEADER_BYTES = 10_000  # that describe the shape and the type of an array
