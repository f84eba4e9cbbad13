"""A sweep as a job array of a real Slurm on this machine: munged, slurmctld and slurmd of Debian's packages, a task requeued in the middle.

Skipped, with the reason, where the daemons are not installed or do not start.
"""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from sweeps import BQRL, FILE, RUNS, await_, began, contents, under_way

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "sinfo", "squeue", "scontrol"]
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"  # Daemons are not on every user's path.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Slurm:
    """One node, one partition, everything in one folder."""

    def __init__(self, folder: Path):
        self.folder, self.daemons = folder, []
        host, user = socket.gethostname().split(".")[0], subprocess.check_output(["id", "-un"], text=True).strip()
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        key = folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.conf = folder / "slurm.conf"
        self.conf.write_text(
            f"""\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=requeue_setup_env_fail
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={min(2, os.cpu_count() or 1)} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
        )
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.conf)}

    def daemon(self, *command):
        with (self.folder / f"{command[0]}.out").open("w") as log:
            self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def start(self):
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
        self.daemon("munged", "--foreground", "--force", f"--socket={munge}/socket", *files)
        await_(lambda: (munge / "socket").exists() or self.dead(), 10)
        self.daemon("slurmctld", "-D", "-f", str(self.conf))
        self.daemon("slurmd", "-D", "-f", str(self.conf))

    def dead(self):
        return any(daemon.poll() is not None for daemon in self.daemons)

    def is_up(self):
        nodes = subprocess.run(["sinfo", "-h", "-o", "%T"], env=self.environment, capture_output=True, text=True)
        return nodes.returncode == 0 and nodes.stdout.strip() in ("idle", "mixed")

    def said(self):
        logs = [path for path in self.folder.rglob("*") if path.suffix in (".log", ".out") or path.name == "log"]
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in logs if path.is_file())

    def ask(self, *command):
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture
def slurm(tmp_path_factory):
    missing = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: apt-get install slurmctld slurmd slurm-client munge)")
    folder = tmp_path_factory.mktemp("slurm")
    slurm = Slurm(folder)
    # munged refuses a socket below a directory that others may not enter.
    for parent in (folder, *folder.parents):
        if os.stat(parent).st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    try:
        slurm.start()
        end = time.monotonic() + 30
        while not slurm.is_up():
            if slurm.dead() or time.monotonic() > end:
                pytest.skip(f"Slurm does not start here:\n{slurm.said()}")
            time.sleep(0.1)
        yield slurm
    finally:
        slurm.stop()


def test_a_requeued_task_goes_on_and_all_is_as_if_nothing_had_happened(local, slurm, tmp_path):
    (tmp_path / "s.toml").write_text(FILE)
    root = tmp_path / "slurm"
    command = [BQRL, "sweep", "s.toml", "--out", "slurm", "--slurm", "--", "--time=10"]
    said = subprocess.run(command, cwd=tmp_path, env=slurm.environment, check=True, capture_output=True, text=True).stdout
    job = said.split(":")[0].removeprefix("Job ")
    assert job.isdigit() and f"{len(RUNS)} runs in {len(RUNS)} tasks" in said

    await_(lambda: under_way(root) is not None, 120, slurm.said)
    run = under_way(root)
    task = f"{job}_{RUNS.index(run.name) + 1}"
    first = began(run)
    slurm.ask("scontrol", "requeue", task)
    # A requeued task waits (BeginTime) for two minutes or so, unless it is told not to.
    await_(lambda: "PENDING" in slurm.ask("squeue", "-h", "-j", task, "-o", "%T"), 60, slurm.said)
    assert not (run / "summary.json").exists(), "it was requeued too late"
    slurm.ask("scontrol", "update", f"JobId={task}", "StartTime=now")
    await_(lambda: slurm.ask("squeue", "-h").strip() == "", 400, lambda: slurm.ask("squeue") + slurm.said())

    command = [BQRL, "sweep", "s.toml", "--out", "slurm", "--collect", "--quiet"]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    log = (root / f"slurm-{task.split('_')[1]}.log").read_text()
    assert "error: interrupted with 1 of 1 runs to go" in log and "is finished" in log, log
    assert began(run) == first
    assert contents(root) == contents(local)
