"""The baseline in numpy: LinUCB as a Python program would write it, all arms in one vectorised call.

`posse bench agent` runs it as a child process, sends it the offers that posse chooses from, and asks for a few turns, so that
both meet the same disturbances. Only the loop below is timed, by the clock, in this process.
"""

import os
import sys
import time

# One core, as for posse. Libraries read it when they are loaded.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

try:
    import numpy as np
except ImportError:
    sys.exit(1)


class LinUcb:
    """LinUCB with an inverse by Sherman and Morrison's formula."""

    def __init__(self, offers):
        self.offers = list(offers)
        self.arms, self.dimension = offers.shape[1:]
        self.inverse = np.eye(self.dimension) / 0.1
        self.theta = np.zeros(self.dimension)
        self.count = 0

    def play(self, rounds):
        d, theta, inverse = self.dimension, self.theta, self.inverse
        for turn in range(rounds):
            offer = self.offers[turn % len(self.offers)]
            information = d * np.log1p(self.count / (d * 0.1))
            alpha = 0.1 * np.sqrt(information + 2.0 * np.log(10.0)) + np.sqrt(0.1)
            widths = np.sqrt(np.einsum("kd,kd->k", offer @ inverse, offer))
            arm = int(np.argmax(offer @ theta + alpha * widths))
            x = offer[arm]
            product = inverse @ x
            scale = 1.0 + x @ product
            theta += ((turn % 7) * 0.1 - theta @ x) / scale * product
            inverse -= np.outer(product, product / scale)
            self.count += 1


def main():
    requests, answers = sys.stdin.buffer, sys.stdout
    print("numpy", np.__version__, file=answers, flush=True)
    learner = None
    for request in requests:
        word, *numbers = request.split()
        if word == b"offers":
            count, arms, dimension = map(int, numbers)
            received = np.frombuffer(requests.read(8 * count * arms * dimension), dtype="<f8")
            learner = LinUcb(received.reshape(count, arms, dimension))
        else:
            start = time.perf_counter()
            learner.play(int(numbers[0]))
            print(time.perf_counter() - start, file=answers, flush=True)


main()
