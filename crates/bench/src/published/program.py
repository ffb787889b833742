"""Runs one algorithm of a paper's authors in their own simulation and says how long that took.

`posse bench --published DIR` starts it once for each row, with the row as JSON in its only argument. What it runs is imported
from the authors' repository as it is: this file only builds their world with the sizes of the row, as their script does when
it is started by itself, and their algorithm. It answers with one line of JSON. With a row that names no algorithm it imports
the scripts and says which versions it has. What is particular to a repository is in a file of its own: `linear.py`,
`clicks.py` and `clustered.py`, which `mod.rs` puts in front of this one.
"""

import glob
import importlib
import json
import os
import platform
import random
import sys
import tempfile
import time
import types

# One core, as for posse. Libraries read it when they are loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

# They print at every iteration. The answer goes where that would have gone.
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

row = json.loads(sys.argv[1])
# Where their scripts are, and so what they import from each other.
sys.path[:0] = sorted({os.path.join(row["clone"], os.path.dirname(script)) for script in row["scripts"]})

# Their scripts load matplotlib for pictures, which nobody asks for here.
try:
    import matplotlib.pyplot
except ImportError:
    pictures = types.ModuleType("matplotlib")
    pictures.pyplot = types.ModuleType("matplotlib.pyplot")
    sys.modules["matplotlib"], sys.modules["matplotlib.pyplot"] = pictures, pictures.pyplot

import numpy as np

# Names that numpy dropped: FedGLB-UCB calls `asmatrix` by the first, the programs for clustered users have the others.
for name, meant in (("mat", np.asmatrix), ("int", int), ("float_", np.float64)):
    if name not in vars(np):
        setattr(np, name, meant)


class Stopwatch:
    """Adds up the processor time of an algorithm's own functions, and counts how often they were called."""

    def __init__(self):
        self.seconds, self.calls = 0.0, 0

    def around(self, function):
        def timed(*arguments, **named):
            begin = time.process_time()
            result = function(*arguments, **named)
            self.seconds += time.process_time() - begin
            self.calls += 1
            return result

        return timed


def iterations(script, world, algorithm):
    """The loop that Async-LinUCB and FedGLB-UCB have in common, timed."""
    choosing, learning = Stopwatch(), Stopwatch()
    algorithm.decide = choosing.around(algorithm.decide)
    algorithm.updateParameters = learning.around(algorithm.updateParameters)
    with tempfile.TemporaryDirectory() as directory:
        script.save_address = directory
        begin = time.process_time()
        world.runAlgorithms({row["algorithm"]: algorithm})
        seconds = time.process_time() - begin
        # What they return leaves out the last iteration; their file has it.
        with open(glob.glob(os.path.join(directory, "AccRegret*"))[0]) as regret:
            regret = float(regret.readlines()[-1].split(",")[1])
    return {
        "seconds": seconds,
        "algorithm_seconds": choosing.seconds + learning.seconds,
        "interactions": learning.calls,
        "regret": regret,
        "communication": int(algorithm.totalCommCost),
    }


def module(script):
    return importlib.import_module(os.path.basename(script))


def play():
    random.seed(0)
    np.random.seed(0)
    script = module(row["script"])
    if row["repository"] == "Federated-Clustering-of-Bandits":
        return clustered(script)
    return iterations(script, *(linear if row["repository"] == "Async-LinUCB" else clicks)(script))


def versions():
    for script in row["scripts"]:
        module(script)
    return {"python": platform.python_version(), "numpy": np.__version__}


print(json.dumps(play() if "algorithm" in row else versions()), file=answers, flush=True)
