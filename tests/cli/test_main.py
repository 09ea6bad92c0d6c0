"""How the command starts and ends: soon, without what it does not need, and at Ctrl-C at once."""

import signal
import subprocess
import sys
import time

import pytest

import rru
from tests.test_packaging import run_without

START = """import sys; sys.argv[1:] = {!r}
from rru.cli import interrupts, main
install = interrupts.end_silently
interrupts.end_silently = lambda: (install(), print('started', flush=True))
main()"""  # before, Python itself starts, and Ctrl-C is its matter
DELAYS = {"--version": (0.02, 0.06), "runs": (0.1, 0.7, 1.5), "stream": (0.02, 0.3, 1, 2)}


def ended(code, folder):
    """Run code in another Python; return its exit code and what it printed to both outputs."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_need_neither_torch_nor_numpy(option):
    code = f"import sys; sys.argv[1:] = [{option!r}]; from rru.cli import main; main()"
    ran = run_without({"torch", "numpy"}, code)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (rru.__version__ if option == "--version" else "Train a cell on a task") in ran.stdout


@pytest.mark.parametrize(("command", "delay"), [(name, delay) for name in DELAYS for delay in DELAYS[name]])
def test_ctrl_c_ends_every_command_silently_at_any_time(command, delay, tmp_path):
    code = START.format([command, *(["nowhere"] if command == "stream" else [])])
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "started\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    if process.returncode == 130:
        assert errors in ("", "stopped\n")
    else:  # it had ended before
        assert process.returncode == (1 if command == "stream" else 0)
        assert "Traceback" not in errors


def test_ctrl_c_while_torch_is_imported_is_silent(tmp_path):
    code = (
        "import os, signal, sys\n"
        "import rru.cli\n"
        "assert 'torch' not in sys.modules\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv[1:] = ['runs']\n"
        "rru.cli.main()\n"
    )
    assert ended(code, tmp_path) == (130, "", "")


def test_ignored_ctrl_c_stays_ignored(tmp_path):
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import sys; sys.argv[1:] = ['--version']\n"
    code += "import os, rru.cli; os.kill(os.getpid(), signal.SIGINT); rru.cli.main()"
    assert ended(code, tmp_path) == (0, f"rru {rru.__version__}\n", "")


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_command_ends_without_taking_python_apart(code, tmp_path):
    """Which takes torch long, and crashed if a module was half imported."""
    program = (
        "import atexit, sys, types\n"
        "import rru.cli\n"
        "class Witness:\n"
        "    def __del__(self): print('taken apart')\n"
        "witness = Witness()\n"
        "atexit.register(print, 'cleaned up')\n"
        f"sys.modules['rru.cli.commands'] = types.SimpleNamespace(app=lambda prog_name: sys.exit({code}))\n"
        "rru.cli.main()\n"
    )
    assert ended(program, tmp_path) == (code, "cleaned up\n", "")


def test_a_reader_of_a_pipe_may_leave_before_the_end(tmp_path):
    code = f'{sys.executable} -c "{START.format(["--help"])}" | head -1'
    done = subprocess.run(["sh", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("started\n", "")
