# SPDX-License-Identifier: BSD-3-Clause
"""compile.py BUILD PROGRAM -- compiles tests/tools/mpi_saver.c with MPICH, for the virtual machine,
which has no compiler."""
import shutil
import sys

import rig as rigs

program = sys.argv.pop()
rig = rigs.Rig(__doc__)
shutil.copy(rig.compile_saver("mpich"), program)
shutil.rmtree(rig.scratch)
