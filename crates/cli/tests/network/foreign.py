"""Joins a federation, uploads, and receives a snapshot, from the published .proto files alone."""
import queue
import subprocess
import sys

address, core, net = sys.argv[1:]
files = ["message", "frame", "service"]
subprocess.check_call(
    [sys.executable, "-m", "grpc_tools.protoc", f"-I{core}", f"-I{net}", "--python_out=.", "--grpc_python_out=."]
    + [f"posse/v1/{name}.proto" for name in files]
)
sys.path.insert(0, ".")

import grpc  # noqa: E402
from posse.v1 import frame_pb2, message_pb2, service_pb2, service_pb2_grpc  # noqa: E402


def evidence():
    packed = message_pb2.Packed(entries=[1.0, 0.5, 0.25, 0.0, 0.0, 0.0])
    return message_pb2.Evidence(count=1, moment=[0.5, 0.25, 0.0], packed=packed)


# A call that is not answered fails; it does not keep the test waiting for ever.
patience = 60


def federation(channel, agent):
    metadata = [("posse-agent", str(agent)), ("posse-federation", "shop")]
    stub = service_pb2_grpc.CoordinatorStub(channel)
    rules = stub.Join(service_pb2.JoinRequest(protocol=1), metadata=metadata, timeout=patience)
    assert rules.dimension == 3 and rules.agent == agent and "async-lin-ucb" in rules.algorithm
    return stub, metadata, rules.incarnation


# Agent 1 over a stream: hello, then two uploads, one after the other's acknowledgement.
channel = grpc.insecure_channel(address)
stub, metadata, life = federation(channel, 1)
frames = queue.Queue()
link = stub.Link(iter(frames.get, None), metadata=metadata, timeout=patience)
frames.put(frame_pb2.UpFrame(incarnation=life, greeting=1))
answer = next(link)
assert answer.greeting == 1 and answer.incarnation == life
received = 0
for number in (1, 2):
    upload = message_pb2.EvidenceUpload(number=number, based_on=0, information=1.0, evidence=evidence())
    message = message_pb2.Uplink(evidence=upload)
    frames.put(frame_pb2.UpFrame(incarnation=life, acknowledged=received, sequence=number, message=message))
    while True:
        answer = next(link)
        received = max(received, answer.sequence)
        if answer.acknowledged == number:
            break
# Read to its end: a stream that is still open when Python ends may lock up its interpreter (grpcio 1.85).
frames.put(None)
for _ in link:
    pass
channel.close()

# Agent 2 by calls: it is told what there is when it joins.
channel = grpc.insecure_channel(address)
stub, metadata, life = federation(channel, 2)
reply = stub.Exchange(frame_pb2.UpFrame(incarnation=life, greeting=1), metadata=metadata, timeout=patience)
channel.close()
snapshots = [frame.message.snapshot for frame in reply.frames if frame.message.HasField("snapshot")]
print("snapshot of", snapshots[-1].evidence.count, "observations")
