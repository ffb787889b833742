"""Async-LinUCB, whose loop is in program.py.

`mod.rs` puts this file in front of program.py, from where names are that are not defined here.
"""


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


