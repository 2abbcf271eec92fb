#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""slurm.py -- runs a training under a real Slurm on hosts that each have a disk of their own, and a
mirror that all share: one that is preempted by another job, and one whose host dies with its disk. The
job must go on by itself, from the step at which it was preempted, or from the newest that the mirror
had, with the state, bit for bit, of a training that was never stopped."""
import os
import re
import shutil
import subprocess

import network as networks
import nodes
import rig as rigs
import torchrun

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged")
RANKS_OF_A_HOST = 2
JOB_HOSTS = 2
HOSTS = 3  # one of them is spare; one more runs Slurm's controller
RANKS = RANKS_OF_A_HOST * JOB_HOSTS
UNTIL = 200
PATIENCE = 90

# A host is dead after SlurmdTimeout. A job that is preempted has GraceTime to end.
CONFIGURATION = """\
ClusterName=sidestep
SlurmctldHost={controller.name}({controller.address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=10
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
Epilog={folder}/epilog
{nodes}
PartitionName=low Nodes={names} Default=YES PriorityTier=1 GraceTime=60 State=UP
PartitionName=high Nodes={names} PriorityTier=10 PreemptMode=OFF State=UP
"""

# The recipe of docs/LEVELS.md: what is left goes to the mirror before the disk is wiped. A host that is
# dead never sends its part.
EPILOG = """\
#!/bin/sh
exec >>{folder}/epilog-$SLURMD_NODENAME 2>&1
near={disk}/$SLURM_JOB_ID
[ -d "$near/.sidestep" ] || exit 0
timeout 20 {build}/sidestep mirror "$near" "{far}/$SLURM_JOB_ID" && rm -rf "$near"
exit 0
"""

JOB = """\
#!/bin/sh
#SBATCH --requeue --open-mode=append --nodes={hosts} --ntasks-per-node={ranks}
export MASTER_ADDR=$(hostname -I | cut -d" " -f1) MASTER_PORT=$((29500 + SLURM_RESTART_COUNT))
srun --kill-on-bad-exit=0 sh -c 'RANK=$SLURM_PROCID GROUP_RANK=$SLURM_NODEID WORLD_SIZE=$SLURM_NTASKS \\
    exec {top}/.venv/bin/python {top}/tests/hosts/slurm_train.py {logs} {until} \\
    {disk}/$SLURM_JOB_ID {far}/$SLURM_JOB_ID'
[ $? -ge 128 ] && scontrol requeue $SLURM_JOB_ID
"""


def reason_not_to():
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"{missing[0]} is not installed (slurmctld, slurmd, slurm-client, munge)" if missing else None


class Slurm(nodes.Cluster):
    """Hosts under Slurm, and a host of its controller, as a context."""

    def __init__(self, rig):
        super().__init__(rig, HOSTS + 1)
        self.rig = rig
        self.folder, self.logs = rig.folder(), rig.folder()
        self.controller = self.network.hosts[HOSTS]
        self.hosts = self.network.hosts[:HOSTS]
        self.processes = []
        os.mkdir(os.path.join(self.network.backing, "far"))

    def write(self, name, text, **words):
        """Write a file into the folder of Slurm; return its path."""
        path = os.path.join(self.folder, name)
        places = {"folder": self.folder, "disk": self.disk, "build": self.rig.build, "top": self.rig.top,
                  "far": os.path.join(self.network.place, "far"), "logs": self.logs}
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.format(**places, **words))
        os.chmod(path, 0o755)
        return path

    def start(self, command, name):
        with open(os.path.join(self.folder, f"{name}.log"), "wb") as log:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                                   stderr=log, start_new_session=True))

    def start_munge(self):
        key = os.path.join(self.folder, "key")
        with open(key, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(os.urandom(1024))
        paths = [f"--{what}={self.folder}/munge.{what.partition('-')[0]}"
                 for what in ("socket", "pid-file", "log-file", "seed-file")]
        self.start(["munged", "--foreground", "--force", f"--key-file={key}", *paths], "munged")

    def __enter__(self):
        super().__enter__()
        names = ",".join(host.name for host in self.hosts)
        lines = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs={RANKS_OF_A_HOST}"
                          for host in self.hosts)
        self.configuration = self.write("slurm.conf", CONFIGURATION, controller=self.controller,
                                        nodes=lines, names=names)
        self.write("epilog", EPILOG)
        self.start_munge()
        self.start(self.controller.command(["slurmctld", "-D", "-f", self.configuration]), "slurmctld")
        for host in self.hosts:
            self.start(host.command(["slurmd", "-D", "-N", host.name, "-f", self.configuration]), host.name)
        if not networks.wait_until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == str(HOSTS),
                                   PATIENCE):
            self.rig.bail(f"Slurm does not start: {self.said()}")
        return self

    def __exit__(self, *error):
        for process in self.processes:
            rigs.finish_group(process)
        super().__exit__(*error)
        for process in self.processes:
            process.wait()

    def ask(self, *command):
        return rigs.run(self.controller.command(list(command)), PATIENCE,
                        {"SLURM_CONF": self.configuration}).out

    def submit(self, *options):
        """Start a job; return its number."""
        said = rigs.run(self.controller.command(["sbatch", "--parsable", f"--chdir={self.folder}", *options]),
                        PATIENCE, {**torchrun.environment(self.rig), "SLURM_CONF": self.configuration})
        if not said.out.isdigit():
            self.rig.bail(f"sbatch fails: {said}")
        return said.out

    def train(self):
        """Start the training; return the job's number."""
        return self.submit(self.write("job", JOB, hosts=JOB_HOSTS, ranks=RANKS_OF_A_HOST, until=UNTIL))

    def told(self, rank=0):
        return torchrun.told(self.logs, rank)

    def come(self, what, condition, job=None):
        """Complaints unless the condition becomes true. A job that waits to be started is hurried."""
        def is_so():
            if job is not None:
                self.ask("scontrol", "update", f"JobId={job}", "StartTime=now")
            return condition()

        return ([] if networks.wait_until(is_so, PATIENCE)
                else [f"no {what} within {PATIENCE} s: {self.said()}"])

    def step(self):
        """The last step of rank 0."""
        steps = re.findall(r"^STEP (\d+)$", self.told(), re.MULTILINE)
        return int(steps[-1]) if steps else 0

    def resumed(self):
        """The steps from which rank 0 went on."""
        return [int(step) for step in re.findall(r"^RESUMED (\d+)$", self.told(), re.MULTILINE)]

    def far(self):
        return os.path.join(self.network.backing, "far", self.job)

    def said(self):
        found = [f"rank {rank}: {' '.join(self.told(rank).split()[-12:])}" for rank in range(RANKS)]
        found.append(self.ask("squeue", "-o", "%i %T %r") + "\n" + self.ask("sinfo", "-N", "-l"))
        for name in sorted(os.listdir(self.folder)):
            if name.startswith(("slurm-", "epilog-")) or name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    found.append(f"{name}: {file.read()[-1500:]}")
        return "\n".join(found)

    def finish(self):
        """Complaints unless all ranks come to the end of the training."""
        return self.come("end of all ranks", lambda: all(f"DONE {UNTIL}" in self.told(rank)
                                                         for rank in range(RANKS)), self.job)


def preempted(rig):
    """A job of a higher partition takes all hosts; then the training goes on from its last step."""
    with Slurm(rig) as slurm:
        slurm.job = slurm.train()
        complaints = slurm.come("step 15", lambda: slurm.step() >= 15)
        urgent = slurm.write("urgent", "#!/bin/sh\nsleep 3\n")
        slurm.submit("--partition=high", f"--nodes={HOSTS}", urgent)
        complaints += slurm.come("preemption", lambda: "PREEMPTED" in slurm.told())
        last = slurm.step()
        complaints += slurm.come("second start", lambda: len(slurm.resumed()) == 2, slurm.job)
        if slurm.resumed() != [0, last]:
            complaints.append(f"it goes on from {slurm.resumed()}, not from [0, {last}]: {slurm.said()}")
        return complaints or slurm.finish()


def host_dies(rig, *, has_mirror=True):
    """A host of the job dies with its disk. Slurm starts the job again with the spare one."""
    with Slurm(rig) as slurm:
        slurm.job = slurm.train()
        complaints = slurm.come("step 10 at the mirror", lambda: slurm.newest() >= 10)
        complaints += slurm.come("step 25", lambda: slurm.step() >= 25)
        slurm.lose(1)
        had = slurm.newest()
        if not has_mirror:
            shutil.rmtree(slurm.far())
        complaints += slurm.come("second start", lambda: len(slurm.resumed()) == 2, slurm.job)
        if complaints or not had <= slurm.resumed()[1] < UNTIL:
            return complaints + [f"it goes on from {slurm.resumed()}, the mirror had {had}: {slurm.said()}"]
        return slurm.finish()


def main():
    rig = torchrun.make_rig(__doc__, "a training under Slurm", reason_not_to())
    rig.test("Slurm preempts a training, and it goes on from its last step", preempted(rig))
    rig.test("a host of a training under Slurm dies with its disk", host_dies(rig))
    rig.control("a host that dies with the mirror", host_dies(rig, has_mirror=False))
    rig.finish()


if __name__ == "__main__":
    main()
