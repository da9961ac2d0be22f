"""A stand-in for Cuebot: takes an RQD's reports, and has it do what a test says.

    cuebot.py RQD_PORT

Each line of its input is an order, each line of its output says what happened, both as JSON. It
sets of a frame's environment what Cuebot does.
"""

import json
import sys
import uuid
from concurrent import futures

import grpc
from opencue_proto import report_pb2, report_pb2_grpc, rqd_pb2, rqd_pb2_grpc


def say(event, **words):
    print(json.dumps(dict(words, event=event)), flush=True)


class Reports(report_pb2_grpc.RqdReportInterfaceServicer):
    """What RQD tells."""

    def ReportRqdStartup(self, request, context):
        host = request.boot_report.host
        threads = int(host.attributes.get("hyperthreadingMultiplier", "1"))
        say("boot", host=host.name, threads=threads)
        return report_pb2.RqdReportRqdStartupResponse()

    def ReportStatus(self, request, context):
        return report_pb2.RqdReportStatusResponse()

    def ReportRunningFrameCompletion(self, request, context):
        report = request.frame_complete_report
        say("end", frame=report.frame.frame_id, status=report.exit_status)
        return report_pb2.RqdReportRunningFrameCompletionResponse()


def launch(rqd, order):
    """Has a frame run, of so many hundredths of a core."""
    frame, cores = order["frame"], order["cores"]
    environment = {
        "CUE_JOB": "show-shot-artist_v1",
        "CUE_FRAME": "0001-render",
        "CUE_FRAME_ID": frame,
        "CUE_THREADS": str(max(1, cores // 100)),
        "CUE_MEMORY": str(256 << 10),
    }
    rqd.LaunchFrame(
        rqd_pb2.RqdStaticLaunchFrameRequest(
            run_frame=rqd_pb2.RunFrame(
                frame_id=frame,
                # To the Rust RQD all that are no UUIDs are one and the same.
                job_id=str(uuid.uuid4()),
                layer_id=str(uuid.uuid4()),
                resource_id=str(uuid.uuid4()),
                job_name=environment["CUE_JOB"],
                frame_name=environment["CUE_FRAME"],
                show="show",
                shot="shot",
                user_name="artist",
                command=order["command"],
                log_dir=order["folder"],
                num_cores=cores,
                environment=environment,
            )
        ),
        wait_for_ready=True,
    )


ORDERS = {
    "launch": launch,
    "lock": lambda rqd, order: rqd.Lock(
        rqd_pb2.RqdStaticLockRequest(cores=order["cores"]), wait_for_ready=True
    ),
    "unlock": lambda rqd, order: rqd.UnlockAll(
        rqd_pb2.RqdStaticUnlockAllRequest(), wait_for_ready=True
    ),
}


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    report_pb2_grpc.add_RqdReportInterfaceServicer_to_server(Reports(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say("listening", port=port)
    with grpc.insecure_channel("127.0.0.1:" + sys.argv[1]) as channel:
        rqd = rqd_pb2_grpc.RqdInterfaceStub(channel)
        for line in sys.stdin:
            order = json.loads(line)
            ORDERS[order["do"]](rqd, order)
            say("done")


main()
