"""Stands for the script of clicks: as its regret it says its threshold or schedule, or else its limit of iterations."""

import math
import os
import matplotlib.pyplot as plt
import numpy as np
from conf import save_address

def dsigmoid(x): return 0.25 * x

class Algorithm:
    totalCommCost = 0
    def __init__(self, **named): self.named = named
    def decide(self, arms, agent): return arms[0], 0
    def updateParameters(self, arm, reward, agent): self.totalCommCost += 100

class FedGLB_UCB(Algorithm): pass
class FedGLB_UCB_v1(Algorithm): pass
class One_UCB_GLM(Algorithm): pass

class simulateOnlineData:
    def __init__(self, **named): self.__dict__.update(named)
    def runAlgorithms(self, algorithms):
        [(name, algorithm)] = algorithms.items()
        arms, named = self.article_feature_matrix, algorithm.named
        assert np.mat is np.asmatrix and hasattr(plt, "__name__")
        assert arms.shape == (1000, 5) and (arms[:, -1] == 1.0).all()
        assert np.allclose((arms[5:, :-1] ** 2).sum(axis=1), 1.0) and np.isclose(self.theta_star @ self.theta_star, 1.0)
        assert named.get("c_mu", 0.25) == 0.25 and named["alpha_t_scaling"] == (0.1 if name == "FedGLB_UCB" else 1.0)
        for _ in range(self.testing_iterations):
            for agent in range(self.n_users):
                algorithm.updateParameters(algorithm.decide(arms, agent)[0], 0, agent)
        regret = named.get("threshold", named.get("sync_period", named["max_iters"]))
        with open(os.path.join(save_address, "AccRegret_now.csv"), "w") as file:
            file.write("Time(Iteration),%s\n0,0.5\n1,%s\n" % (name, regret))
