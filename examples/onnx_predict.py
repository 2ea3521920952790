"""Predict with an ONNX file: NumPy and onnxruntime, no PyTorch and no lno.

lno export model.safetensors --onnx model.onnx
python examples/onnx_predict.py model.onnx
"""

import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
about = session.get_modelmeta().custom_metadata_map
names, low, high = (json.loads(about[key]) for key in ("names", "low", "high"))
kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
random = np.random.default_rng(0)
inputs = {}
for given in session.get_inputs():  # one sample of 100 observed points and 20 queries
    free = {"samples": 1, "points": 100, "queries": 20}
    shape = [free.get(size, size) for size in given.shape]
    box = (low, high) if given.name in ("x", "x_query") else (0.5, 1.0)  # put your values here
    inputs[given.name] = random.uniform(*box, shape).astype(kinds[given.type])
(y,) = session.run(None, inputs)
print(f"{', '.join(names['y'])} at {y.shape[1]} points, the first:", *y[0, 0])
