"""Stands for the script of agents that are alike: as its regret it says the threshold it was given, it counts a message for every
interaction, and it prints what would spoil the answer.
"""

import os
from conf import save_address

class Noted:
    def __init__(self, *positional, **named):
        self.__dict__.update(named)
        self.positional = positional

class UserManager(Noted):
    def simulateThetaForHomoUsers(self): return ["alike"]
    def simulateThetaForHeteroUsers(self, shared): return ["different", shared]

class ArticleManager(Noted):
    def simulateArticlePool(self): return ["arm"]

def gaussianFeature(): pass

class Algorithm(Noted):
    totalCommCost = 0
    def decide(self, arms, agent): return arms[0]
    def updateParameters(self, arm, reward, agent): self.totalCommCost += 1

class AsyncLinUCB(Algorithm): pass
class SyncLinUCB(Algorithm): pass
class AsyncLinUCB_AM(Algorithm): pass

class simulateOnlineData(Noted):
    def runAlgorithms(self, algorithms):
        [(name, algorithm)] = algorithms.items()
        print("Iteration 0")
        os.write(1, b"noise\n")
        for _ in range(self.testing_iterations):
            algorithm.updateParameters(algorithm.decide(self.articles, 0), 0.0, 0)
        assert not self.plot and self.poolArticleSize == 3 and self.noise() != self.noise()
        if name == "AsyncLinUCB_AM":
            assert self.users == ["different", 2] and (algorithm.dimension_g, algorithm.dimension_l) == (2, 3)
        else:
            assert self.users == ["alike"] and algorithm.dimension == 5
        regret = algorithm.threshold if name == "SyncLinUCB" else algorithm.gammaU
        with open(os.path.join(save_address, "AccRegret_now.csv"), "w") as file:
            file.write("Time(Iteration),%s\n0,0.5\n1,%s\n" % (name, regret))
