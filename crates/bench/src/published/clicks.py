"""FedGLB-UCB, whose loop is in program.py.

`mod.rs` puts this file in front of program.py, from where names are that are not defined here.
"""


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


