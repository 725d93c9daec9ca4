"""Two processes, as ``accelerate launch`` or ``torchrun`` start them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import multidraft as md
from multidraft.training.processes import ALONE, Processes
from tests.multidraft.training.targets import write_prompts, write_target
from tests.ports import free_port

ROOT = Path(__file__).parents[3]


def run_two(arguments):
    """Start both as the launchers do, by these variables; what each has printed."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    shared |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    script = [sys.executable, str(Path(__file__).with_name("two_processes.py")), *arguments]
    running = [
        subprocess.Popen(
            script,
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    results = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], results[0][1][-2000:] + results[1][1][-2000:]
    return [output for output, _ in results]


def test_a_process_alone_needs_no_launcher(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    alone = Processes.join("cpu")
    assert alone == ALONE and alone.first
    alone.wait()
    assert alone.agree(1.5, 7) == (1.5, 7)
    alone.leave()


@pytest.mark.long
def test_two_processes_train_as_one_and_make_a_pool_together(tmp_path):
    write_target(tmp_path / "target", layers=4)
    data = write_prompts(tmp_path)
    command = ["train", "--target", str(tmp_path / "target"), "--data", *data, "--out", str(tmp_path / "out")]
    command += ["--kind", "eagle", "--epochs", "2", "--temperatures", "0", "--max-new-tokens", "16", "--batch", "4"]
    outputs = run_two([str(tmp_path), *command, "--batch-tokens", "256"])
    assert outputs[1] == "" and "by 2 processes" in outputs[0] and "measuring the drafters" in outputs[0]
    assert {p.name for p in tmp_path.glob("agreed-*")} == {"agreed-0", "agreed-1"}
    assert len(list((tmp_path / "out" / "work" / "answers").glob("*.pt"))) == 8
    assert [d.name for d in md.load_pool(tmp_path / "out").drafters] == ["general", "letters", "words"]
