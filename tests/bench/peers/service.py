"""The server that a user would write instead of running quantd: FastAPI serves every ONNX file of
$MODELS, which it loads once. The request's body is the bytes of x, in the model's type and shape.
The answer's body is the bytes of y. Under /json, both bodies are JSON in the form of the Open
Inference Protocol.

    MODELS=models THREADS=2 uvicorn service:app --loop uvloop --http httptools --workers 1
"""
import os
from pathlib import Path

import numpy as np
import onnxruntime
import orjson
from fastapi import FastAPI, Request, Response

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
sessions = {path.stem: onnxruntime.InferenceSession(path, options)
            for path in Path(os.environ["MODELS"]).glob("*.onnx")}
shapes = {name: session.get_inputs()[0].shape for name, session in sessions.items()}
types = {name: np.float32 if session.get_inputs()[0].type == "tensor(float)" else np.uint8
         for name, session in sessions.items()}
app = FastAPI()


@app.post("/{name}")
async def infer(name: str, request: Request):
    x = np.frombuffer(await request.body(), types[name]).reshape(shapes[name])
    y, = sessions[name].run(None, {"x": x})
    return Response(y.tobytes(), media_type="application/octet-stream")


@app.post("/json/{name}")
async def infer_json(name: str, request: Request):
    x = orjson.loads(await request.body())["inputs"][0]
    y, = sessions[name].run(None, {"x": np.array(x["data"], np.uint8).reshape(x["shape"])})
    return Response(orjson.dumps({"model_name": name, "outputs": [
        {"name": "y", "datatype": "FP32", "shape": y.shape, "data": y.ravel()}]},
        option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")
