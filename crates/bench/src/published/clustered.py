"""Federated-Clustering-of-Bandits, with a loop of its own.

`mod.rs` puts this file in front of program.py, from where names are that are not defined here.
"""


def clustered(script):
    """Runs `FCLUB` or `LDP_FCLUB_DC` in its own loop. Parameters of clusters are drawn and users divided as in their main.py:
    neighbours are of one cluster, and of one server.
    """
    users, servers, clusters, d = row["users"], row["agents"], row["clusters"], row["features"]
    steps, threshold = row["interactions"], float(row["setting"])
    centres = script.Envi.generate_items(num_items=clusters, d=d)
    theta = [centres[user * clusters // users] for user in range(users)]
    world = script.Envi.Environment(d=d, num_users=users, L=row["arms"], theta=theta)
    arrivals, others = Stopwatch(), Stopwatch()
    world.generate_users = arrivals.around(world.generate_users)
    for name in ("get_items", "feedback", "feedback_Local"):
        setattr(world, name, others.around(getattr(world, name)))
    if row["algorithm"] == "FCLUB":
        most, settings = steps, {"T": steps, "number": 0, "user_num": users}
    else:
        script.U, script.D = threshold, threshold
        # Phases have 2, 4, 8 and so on steps. The last one ends where `all_round` would be the next step.
        most = steps + 1
        settings = {"phase": most.bit_length() - 1, "number": 0, "all_round": most}
    begin = time.process_time()
    server = script.Global_server(servers, users, [users // servers] * servers, d=d, T=most)
    result = server.run(world, **settings)
    seconds = time.process_time() - begin
    regret, communication = result[0], result[-1]
    return {
        "seconds": seconds,
        # Their functions call each other, so it is the world's time that is read, and taken from the whole. What they write
        # down is in the clusters that they copy: it stays in.
        "algorithm_seconds": seconds - arrivals.seconds - others.seconds,
        "interactions": arrivals.calls,
        "regret": float(regret.sum()),
        # At every step, what was sent until then.
        "communication": int(communication[-1]),
    }


