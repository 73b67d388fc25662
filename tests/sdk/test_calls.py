"""What the Python client sends and how it reads answers: by equality, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from rowlock import ClientError, JobFailed, ServerUnreachable
from rowlock.answers.workloads import Workload
from rowlock.runtime import function_rank
from rowlock.sdk import calls, client_errors, function_calls
from rowlock.sdk.models import LogLine, WorkloadInfo
from rowlock.sdk.server_address import Login, choose_login, find_server
from rowlock.sdk.submission_body import JobRequest, job_request


def workload_info(**fields: Any) -> WorkloadInfo:
    """From an answer with these fields, and what the client reads beside them."""
    read = ("id", "projectName", "type", "distributedFramework", "phaseMessage", "createdAt")
    return WorkloadInfo.from_json(cast(Workload, {**dict.fromkeys(read, ""), "name": "a", **fields}))


def test_a_working_directory_that_was_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ClientError, match="the working directory of this program was deleted: name one"):
        JobRequest(name="a", command="true").body("team-a")
    assert JobRequest(name="a", command="true", working_dir="/w").body("team-a")["spec"]["workingDir"] == "/w"


def test_a_request_is_run_ais() -> None:
    request = JobRequest(name="a", command="python 'my train.py' $$", nnodes=3, gpus=0.5, memory="2G", env={"A": "1"}, retries=2, working_dir="/w")  # fmt: skip
    assert request.body("team-a") == {
        "name": "a",
        "projectId": "team-a",
        "spec": {
            "image": "rowlock.dev/host",
            "distributedFramework": "PyTorch",
            "numWorkers": 2,
            "compute": {
                "gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": 0.5, "cpuMemoryRequest": "2G",
            },
            "backoffLimit": 2,
            "restartPolicy": "OnFailure",
            "environmentVariables": [{"name": "A", "value": "1"}],
            "command": ["python", "my train.py", "$$$$"],
            "workingDir": "/w",
        },
    }  # fmt: skip


def test_an_image_runs_its_own_command_where_it_wants() -> None:
    spec = JobRequest(name="a", image="mnist", project="b", spec={"noMaster": True}).body("team-a")["spec"]
    assert "command" not in spec and "workingDir" not in spec and spec["noMaster"] is True


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"nnodes": 0}, "nnodes must be a whole number from 1"),
        ({"nnodes": True}, "nnodes must be a whole number from 1"),
        ({"retries": -1}, "retries must be 0 or more"),
        ({"command": ()}, "command says what runs"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ClientError, match=sentence):
        job_request(**{"name": "a", "command": "true", **values}).body("default")


@pytest.mark.parametrize(
    ("phase", "reached", "phases", "arrived"),
    [
        ("Running", "Running", ("Running",), True),
        ("Degraded", "Running", ("Running",), True),
        ("Degraded", None, ("Running",), False),
        ("Degraded", "Running", ("Completed",), False),
        ("Deleted", "Running", ("Running",), False),
        ("Degraded", "Degraded", ("Degraded", "Failed"), True),
    ],
)
def test_the_server_says_what_was_reached(
    phase: str, reached: str | None, phases: tuple[str, ...], arrived: bool
) -> None:
    assert workload_info(phase=phase, reachedPhase=reached).is_in(phases) is arrived


@pytest.mark.parametrize("phase", ["Running", "Degraded"])
def test_an_older_server_says_only_the_phase(phase: str) -> None:
    assert workload_info(phase=phase).is_in(("Running",)) is (phase == "Running")


def test_an_unknown_field_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="did you mean 'gpus'"):
        job_request(name="a", gpu=1)


def test_lines_are_whole_however_they_come() -> None:
    splitter = calls.LogLineSplitter()
    lines = [line for chunk in (b"a", b"b\nc\r\n", b"\xe2\x80\xa8d") for line in splitter.feed_chunk(chunk)]
    assert [*lines, *splitter.flush(), *splitter.flush()] == [b"ab", b"c\r", b"\xe2\x80\xa8d"]


def test_a_line_says_its_rank() -> None:
    assert LogLine.from_line(b"[rank 12] loss [x] 3") == LogLine("rank 12", "loss [x] 3")
    assert LogLine.from_line(b"[rank 12] ").rank == 12
    assert LogLine.from_line(b"[launcher] go").rank is None
    assert LogLine.from_line(b"\xff plain").text == "� plain"
    assert calls.read_log_line(b"[rank 9] mine", 1) == LogLine("rank 1", "[rank 9] mine")


def test_a_query_says_what_was_said() -> None:
    call = calls.logs("a/b", rank=1, follow=True, tail=0, attempt=None, timestamps=False)
    assert (call.path, call.parameters()) == (
        "/api/v1/workloads/a%2Fb/pods/rank-1/logs",
        {"follow": "true", "tail": "0", "progress": "false"},
    )
    assert calls.wait("x", ("Running",), 1).parameters() == {"for": "Running", "timeout": "1.000"}


def test_answers_of_newer_servers_disturb_nobody() -> None:
    workload = workload_info(id="1", phase="Running", somethingNew=1, phaseMessage=None)
    assert (workload.message, workload.is_finished, workload.raw["somethingNew"]) == ("", False, 1)


def test_a_refusal_keeps_its_sentence() -> None:
    body = {"code": 400, "message": "no", "complianceIssues": [{"field": "spec.image", "details": "is missing"}, 7]}
    error = client_errors.refusal(400, body)
    assert (str(error), error.status, error.issues) == ("no", 400, (("spec.image", "is missing"),))
    assert str(client_errors.refusal(502, "")) == "the server answered with HTTP 502"


def test_where_the_server_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROWLOCK_URL", "ROWLOCK_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ServerUnreachable, match=r"no server is running .* `rowlock up -d --data-dir"):
        find_server(data_dir=tmp_path)
    (tmp_path / "server.json").write_text("[]")
    with pytest.raises(ServerUnreachable, match="cannot be read"):
        find_server(data_dir=tmp_path)
    (tmp_path / "server.json").write_text('{"url": "https://127.0.0.1:9"}')
    (tmp_path / "token").write_text("secret\n")
    assert find_server(data_dir=tmp_path).token == "secret"
    assert "secret" not in repr(find_server(data_dir=tmp_path))
    monkeypatch.setenv("ROWLOCK_URL", "https://box/")
    monkeypatch.setenv("ROWLOCK_TOKEN", "other")
    assert (find_server().url, find_server().token) == ("https://box", "other")
    assert find_server(data_dir=tmp_path).token == "secret", "what a program says counts more"
    with pytest.raises(ServerUnreachable, match="HTTPS servers only"):
        find_server("http://box", token="x")
    with pytest.raises(ServerUnreachable, match="who you are"):
        find_server("https://box")


def test_a_login_is_whole_and_shows_no_secret() -> None:
    with pytest.raises(ClientError, match="one of the two is missing"):
        choose_login("ana", None, None, None)
    login = choose_login(None, None, "ci", "hidden")
    assert login == Login("client_credentials", "ci", "hidden") and "hidden" not in repr(login)


def test_a_function_goes_along_and_comes_out_of_the_environment() -> None:
    offset = 40
    environ = {"HOME": "/", **function_calls.pickle_call(lambda x: x + offset, (2,), {})}
    call = function_rank.take_call(environ)
    assert environ == {"HOME": "/"} and str(Path.cwd()) in [*call["path"], str(Path.cwd())]
    with pytest.raises(ValueError, match="no function came along"):
        function_rank.take_call(environ)


def test_what_is_too_large_or_cannot_be_pickled_is_refused() -> None:
    noise = __import__("random").Random(1).randbytes(600_000)
    with pytest.raises(ClientError, match="load data inside"):
        function_calls.pickle_call(lambda: len(noise), (), {})
    with pytest.raises(ClientError, match="cannot be sent"):
        function_calls.pickle_call(print, (sys.stdout,), {})


def test_results_are_read_from_the_last_line_of_each_rank() -> None:
    done = workload_info(phase="Completed")
    lines = [
        function_rank.format_result(1, 2, "early"), "rowlock.result nonsense", "rowlock.result []",
        function_rank.format_result(1, 2, "late"), "loss 3", function_rank.format_result(0, 2, {"x": 1}),
    ]  # fmt: skip
    assert function_calls.read_results(done, lines, "") == [{"x": 1}, "late"]
    with pytest.raises(JobFailed, match="no rank told a result"):
        function_calls.read_results(done, ["loss 3"], "")
    with pytest.raises(JobFailed, match=r"a is Failed\. rank 1 fell"):
        function_calls.read_results(workload_info(phase="Failed"), [], "rank 1 fell")
    with pytest.raises(JobFailed, match=r"completed without a result of rank 0\. rank 0 fell"):
        function_calls.read_results(done, [function_rank.format_result(1, 2, "late")], "rank 0 fell")
    with pytest.raises(TypeError, match="returned a set"):
        function_rank.format_result(0, 1, set())
    with pytest.raises(ValueError, match="write it to a file"):
        function_rank.format_result(0, 1, "x" * function_rank.MAX_RESULT)


def test_a_job_is_called_as_its_function() -> None:
    def Train_v2() -> None: ...

    request = function_calls.function_request(Train_v2, (), None, {"nnodes": 2})
    assert (request.name, request.name_is_prefix) == ("train-v2", True)
    assert function_calls.job_name(lambda: 0) == "lambda"
