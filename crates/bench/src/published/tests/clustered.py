"""Stands for the scripts for clustered users and for their world: as its regret `LDP_FCLUB_DC` says its threshold, and `FCLUB` how
long it is to be. Both print what would spoil the answer.
"""

import os
import sys
import time
import numpy as np

# The processor time of this play, which all its modules share: a step takes one second, and the world two.
if not hasattr(time, "played"):
    time.played = 0.0
    time.process_time = lambda: time.played

Envi = sys.modules[__name__] if __name__ == "Environment" else __import__("Environment")
U = D = 1.01

def generate_items(num_items, d): return np.arange(num_items * d, dtype=np.float_).reshape(num_items, d)

class Environment:
    def __init__(self, d, num_users, theta, L): self.d, self.num_users, self.theta, self.L = d, num_users, theta, L
    def generate_users(self): return [self.num_users - 1]
    def get_items(self): return generate_items(self.L, self.d)
    def feedback(self, items, i): return 0.5
    def feedback_Local(self, items, i): time.played += 2.0

class Global_server:
    def __init__(self, L, n, userList, d, T):
        assert (L, n, userList, d) == (4, 8, [2, 2, 2, 2], 5)
        self.T, self.regret = T, np.zeros(T)

    def step(self, world, feedback):
        # Four users of each of two clusters, one after the other.
        assert [theta[0] for theta in world.theta] == [0.0] * 4 + [5.0] * 4
        assert world.get_items().shape == (3, 5) and world.generate_users() == [7]
        print("beta")
        os.write(1, b"noise\n")
        time.played += 1.0
        feedback(world.get_items(), i=7)

    def run(self, world, number, T=None, user_num=None, phase=None, all_round=None):
        sent = []
        if __name__ == "FCLUB":
            assert (self.T, T, user_num) == (12, 12, 8)
            for t in range(T):
                self.step(world, world.feedback)
                self.regret[t] = T / 48
                sent.append(t + 1)
            return self.regret, {}, None, [], [], sent
        assert (self.T, all_round) == (13, 13) and phase == np.int(3)
        for t in range(1, 2 ** (phase + 1) - 1):
            if t >= all_round:
                break
            self.step(world, world.feedback_Local)
            sent.append(2 * t + 1)
        self.regret[-2] = U if U == D else -1.0
        return self.regret, [], None, sent
