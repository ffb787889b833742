"""Runs one algorithm of a paper's authors in their own simulation and says how long that took.

`posse bench --published DIR` starts it once for each row, with the row as JSON in its only argument. What it runs is imported
from the authors' repository as it is: this file only builds their world with the sizes of the row, as their script does when
it is started by itself, and their algorithm. It answers with one line of JSON. With a row that names no algorithm it imports
the scripts and says which versions it has.
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
sys.path.insert(0, row["clone"])

# Their scripts load matplotlib for pictures, which nobody asks for here.
try:
    import matplotlib.pyplot
except ImportError:
    pictures = types.ModuleType("matplotlib")
    pictures.pyplot = types.ModuleType("matplotlib.pyplot")
    sys.modules["matplotlib"], sys.modules["matplotlib.pyplot"] = pictures, pictures.pyplot

import numpy as np

# Numpy 2 has no `mat`, by which FedGLB-UCB calls `asmatrix`.
if not hasattr(np, "mat"):
    np.mat = np.asmatrix


def linear(script):
    """A world and an algorithm of Async-LinUCB: λ, δ and the noise are 0.1, as in posse's row."""
    d, shared, threshold = row["features"], row["shared"], float(row["setting"])
    users = script.UserManager(d, row["agents"], thetaFunc=script.gaussianFeature, argv={"l2_limit": 1})
    articles = script.ArticleManager(d, n_articles=1000, argv={"l2_limit": 1})
    world = {
        "context_dimension": d,
        "testing_iterations": row["interactions"],
        "plot": False,
        "noise": lambda: np.random.normal(scale=0.1),
        "NoiseScale": 0.1,
        "poolArticleSize": row["arms"],
    }
    settings = {"alpha": -1, "lambda_": 0.1, "delta_": 0.1, "NoiseScale": 0.1}
    if row["algorithm"] == "SyncLinUCB":
        settings |= {"dimension": d, "threshold": threshold}
    elif row["algorithm"] == "AsyncLinUCB":
        settings |= {"dimension": d, "gammaU": threshold, "gammaD": threshold}
    else:
        settings |= {"dimension_g": shared, "dimension_l": d - shared, "gammaU": threshold, "gammaD": threshold}
        world["name_label"] = ""
    alike = row["algorithm"] != "AsyncLinUCB_AM"
    world["users"] = users.simulateThetaForHomoUsers() if alike else users.simulateThetaForHeteroUsers(shared)
    world["articles"] = articles.simulateArticlePool()
    return script.simulateOnlineData(**world), getattr(script, row["algorithm"])(**settings)


def clicks(script):
    """A world and an algorithm of FedGLB-UCB: a parameter on the unit sphere, and 1000 arms on a sphere that end in a one."""
    d, agents, name = row["features"], row["agents"], row["algorithm"]
    rounds = row["interactions"] // agents
    theta = np.random.normal(size=d)
    arms = np.random.normal(size=(1000, d))
    arms[:, -1] = 0.0
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    arms[:d] = np.eye(d)
    arms[:, -1] = 1.0
    world = script.simulateOnlineData(
        context_dimension=d,
        testing_iterations=rounds,
        n_users=agents,
        theta_star=theta / np.linalg.norm(theta),
        article_feature_matrix=arms,
        poolArticleSize=row["arms"],
        namelabel="",
        plot=False,
    )
    # The scale of widths and the limit of iterations are those of their script, which chose them for each algorithm.
    settings = {"lambda_": 2, "delta": 0.01, "R": 0.5, "alpha": None, "alpha_t_scaling": 0.1}
    if name in ("One_UCB_GLM", "N_UCB_GLM"):
        settings |= {"dim": d, "horizon": rounds, "numUsers": agents, "alpha_t_scaling": 1.0}
        settings["max_iters"] = 5 if name == "One_UCB_GLM" else 100
    else:
        settings |= {"dimension": d, "S": 1}
    if name != "One_UCB_GLM":
        settings["c_mu"] = script.dsigmoid(1)
    if name.startswith("FedGLB_UCB"):
        settings |= {"init_x": np.zeros(d), "max_iters": None}
        settings |= {"alpha_t_scaling": 1.0} if name == "FedGLB_UCB_v1" else {"n_users": agents}
        settings |= {"threshold": float(row["setting"])} if name == "FedGLB_UCB" else {"sync_period": float(row["setting"])}
    return world, getattr(script, name)(**settings)


class Stopwatch:
    """Adds up the processor time of an algorithm's own functions, and counts how often they were called."""

    def __init__(self):
        self.seconds, self.calls = 0.0, 0

    def around(self, function):
        def timed(*arguments):
            begin = time.process_time()
            result = function(*arguments)
            self.seconds += time.process_time() - begin
            self.calls += 1
            return result

        return timed


def play():
    random.seed(0)
    np.random.seed(0)
    script = importlib.import_module(row["script"])
    world, algorithm = (clicks if row["script"] == "RunSyntheticDataset" else linear)(script)
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


def versions():
    for script in row["scripts"]:
        importlib.import_module(script)
    return {"python": platform.python_version(), "numpy": np.__version__}


print(json.dumps(play() if "algorithm" in row else versions()), file=answers, flush=True)
