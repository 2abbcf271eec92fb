"""Parsing, usage errors, help and man pages."""
import os
import re
import shutil
import subprocess

from harness import Skip

COMMANDS = ("ls show latest verify cat diff convert cp mirror gc prune watch check metrics events trace "
            "report pin unpin tag rebuild doctor "
            "bench completion help version").split()


def refused(sidestep, arguments, message, topic=None):
    sidestep.expect(*arguments, status=2, stderr=f"sidestep: {message}\nTry 'sidestep help"
                    f"{' ' + topic if topic else ''}'.\n")


def test_no_command(sidestep):
    """a command is missing"""
    refused(sidestep, [], "a command is missing")
    refused(sidestep, ["-q", "--"], "a command is missing")


def test_unknown_command(sidestep):
    """an unknown command, with and without a suggestion"""
    refused(sidestep, ["verfiy", "x"], "unknown command 'verfiy'; did you mean 'verify'?")
    refused(sidestep, ["lates"], "unknown command 'lates'; did you mean 'latest'?")
    refused(sidestep, ["frobnicate"], "unknown command 'frobnicate'")
    refused(sidestep, ["x" * 5000], "unknown command '" + "x" * 686)
    refused(sidestep, [""], "unknown command ''")


def test_unknown_command_is_escaped(sidestep):
    """a mistyped word is escaped when it is printed"""
    refused(sidestep, ["\x1b[31mred\n\u202e"], r"unknown command '\x1b[31mred\n\u202e'")
    refused(sidestep, [b"\xff\\"], r"unknown command '\xff\\'")


def test_unknown_option(sidestep):
    """an unknown option, with and without a suggestion"""
    refused(sidestep, ["ls", "--al"], "ls: unknown option '--al'; did you mean '--all'?", "ls")
    refused(sidestep, ["gc", "--dryrun", "x"],
            "gc: unknown option '--dryrun'; did you mean '--dry-run'?", "gc")
    refused(sidestep, ["gc", "--wipe=x", "x"], "gc: unknown option '--wipe'", "gc")
    refused(sidestep, ["ls", "-z"], "ls: unknown option '-z'", "ls")
    refused(sidestep, ["--all", "ls"], "sidestep: unknown option '--all'")
    refused(sidestep, ["cat", "-j1", "x", "y"], "cat: unknown option '-j'", "cat")


def test_hidden_option_is_not_suggested(sidestep):
    """a hidden option is not suggested"""
    refused(sidestep, ["help", "--mann"], "help: unknown option '--mann'", "help")


def test_option_arguments(sidestep):
    """arguments of options: missing, superfluous, not a choice, not a number"""
    refused(sidestep, ["ls", "--color"], "ls: option '--color' needs an argument: WHEN", "ls")
    refused(sidestep, ["verify", "x", "-j"], "verify: option '--threads' needs an argument: N",
            "verify")
    refused(sidestep, ["ls", "--all=yes"], "ls: option '--all' takes no argument", "ls")
    refused(sidestep, ["ls", "--color=red"],
            "ls: --color: 'red' is none of: auto, always, never", "ls")
    for number in ["0", "-1", "1025", "1x", "", "99999999999999999999", " 1", "+1"]:
        refused(sidestep, ["verify", f"--threads={number}", "x"],
                f"verify: --threads: '{number}' is not a number from 1 to 1024", "verify")
    refused(sidestep, ["convert", "--ranks=65", "x", "y"],
            "convert: --ranks: '65' is not a number from 1 to 64", "convert")
    refused(sidestep, ["prune", "--keep-last=-1", "x"],
            "prune: --keep-last: '-1' is not a number from 0 to 4294967295", "prune")


def test_operands(sidestep):
    """operands: missing, one too many, empty"""
    refused(sidestep, ["show"], "show: CKPT is missing", "show")
    refused(sidestep, ["cat", "x"], "cat: NAME is missing", "cat")
    refused(sidestep, ["ls", "a", "b"], "ls: one operand too many: 'b'", "ls")
    refused(sidestep, ["version", "a"], "version: one operand too many: 'a'", "version")
    refused(sidestep, ["verify", ""], "verify: PATH is empty", "verify")
    refused(sidestep, ["completion", "tcsh"], "completion: 'tcsh' is none of: bash, zsh, fish",
            "completion")
    refused(sidestep, ["help", "lss"], "help: unknown command 'lss'; did you mean 'ls'?", "help")
    refused(sidestep, ["cat", "--npy", "--value", "a", "b"],
            "cat: --npy, --value and --file exclude each other", "cat")


def test_option_places(sidestep):
    """options may be before, between and after operands, in every form"""
    expected = sidestep.run("ls", "--json", "--all", sidestep.folder).stdout
    assert expected == '{"checkpoints":[]}\n'
    for arguments in [["--json", "ls", "-a"], ["ls", "-aq", "--json"],
                      ["--color=never", "ls", "--json"], ["ls", "--color", "never", "--json", "-qva"]]:
        sidestep.expect(*arguments, sidestep.folder, stdout=expected)
        sidestep.expect(*arguments, "--", sidestep.folder, stdout=expected)


def test_double_dash(sidestep):
    """-- ends options: what follows is an operand"""
    os.mkdir(sidestep.path("--all"))
    sidestep.expect("ls", "--json", "--", "--all", cwd=sidestep.folder,
                    stdout='{"checkpoints":[]}\n')
    refused(sidestep, ["ls", "--", "a", "--json"], "ls: one operand too many: '--json'", "ls")


def test_json_usage_errors(sidestep):
    """with --json a usage error is JSON, wherever --json is"""
    for arguments in [["frob"], ["ls", "--frob"], ["show"]]:
        error = sidestep.json_error(*arguments, status=2)
        assert error["status"] == "EINVAL" and error["errno"] == 0 and error["rank"] == -1, error
    result = sidestep.run("ls", "--frob", "--json")
    assert result.stderr == ('{"error":{"status":"EINVAL","message":"ls: unknown option \'--frob\'",'
                             '"errno":0,"rank":-1}}\n'), result.describe()
    error = sidestep.json_error("\x1b\"\\\n\x9b\u2028", status=2)
    assert error["message"] == "unknown command '\x1b\"\\\n\x9b\u2028'", error


def test_version(sidestep):
    """version, --version, -V"""
    for arguments in [["version"], ["--version"], ["-V"], ["ls", "-V"]]:
        sidestep.expect(*arguments, stdout=re.compile(r"sidestep \d+\.\d+\.\d+\n"))
    assert list(sidestep.json("version")) == ["version", "library_version"]


def test_help_is_the_same_everywhere(sidestep):
    """help CMD, CMD --help and CMD -h are the same"""
    overview = sidestep.run("help").stdout
    sidestep.expect("--help", stdout=overview)
    sidestep.expect("-h", stdout=overview)
    for command in COMMANDS:
        text = sidestep.run("help", command).stdout
        assert text.startswith(f"NAME\n  sidestep-{command} - "), text
        sidestep.expect(command, "--help", stdout=text)
        sidestep.expect("-h", command, stdout=text)
        assert f"\n  {command} " in overview, command


def test_help_begins_with_examples(sidestep):
    """each help begins with examples"""
    for command in COMMANDS:
        text = sidestep.run("help", command).stdout
        sections = re.findall(r"^[A-Z ]+$", text, re.MULTILINE)
        assert sections[:4] == ["NAME", "SYNOPSIS", "EXAMPLES", "DESCRIPTION"], sections
        assert "sidestep " + command in text.split("EXAMPLES")[1].split("DESCRIPTION")[0], text


def test_help_fits(sidestep):
    """help has no control characters, and only unbreakable words are wider than 79 columns"""
    for command in COMMANDS:
        for line in sidestep.run("help", command).stdout.splitlines():
            assert line.isprintable(), line
            assert len(line) < 80 or "{" in line or "sidestep " in line, line


def roff_words(page):
    """The words that a reader of the page sees."""
    words = []
    for line in page.splitlines():
        if line.startswith(".SH "):
            line = line[4:]
        elif line.startswith("."):
            continue
        for escape, text in [("\\fB", ""), ("\\fR", ""), ("\\:", ""), ("\\&", ""), ("\\-", "-"),
                             ("\\(aq", "'"), ("\\(ga", "`"), ("\\(ha", "^"), ("\\(ti", "~"),
                             ("\\(rs", "\\")]:
            line = line.replace(escape, text)
        words += line.split()
    return words


def test_man_pages_say_what_help_says(sidestep):
    """the man page of each command has the words of its help"""
    for command in COMMANDS:
        page = sidestep.run("help", "--man", command).stdout
        assert roff_words(page) == sidestep.run("help", command).stdout.split(), command
    assert roff_words(sidestep.run("help", "--man").stdout) == sidestep.run("help").stdout.split()


def test_man_pages_are_up_to_date(sidestep):
    """docs/man is up to date with tools/make-man"""
    done = subprocess.run(["tools/make-man", "--check", sidestep.program], capture_output=True,
                          text=True, env=sidestep.environment(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_man_pages_are_clean(sidestep):
    """groff has no warning for any page"""
    if not shutil.which("groff"):
        raise Skip("no groff here")
    for name in sorted(os.listdir("docs/man")):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", f"docs/man/{name}"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stderr == "", name + ": " + done.stderr


def test_library_page_names_every_function(sidestep):
    """sidestep(3) names every function of the headers, and no other"""
    code = ""
    for part in ("", "_series", "_tools"):
        with open(f"include/sidestep/sidestep{part}.h", encoding="utf-8") as file:
            code += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    code = re.sub(r"^template.*?^}|^#define [^\n]*", "", code, flags=re.DOTALL | re.MULTILINE)  # of C++
    with open("docs/man/sidestep.3", encoding="utf-8") as file:
        page = file.read()
    declared = set(re.findall(r"\b(sidestep_\w+)\(", code))
    named = set(re.findall(r"^\.BR (sidestep_\w+) \(\)", page, re.MULTILINE))
    assert declared == named, declared ^ named


def test_help_json(sidestep):
    """help --json is the table, without hidden options"""
    table = sidestep.json("help")
    assert [command["name"] for command in table["commands"]] == COMMANDS
    assert [option["name"] for option in table["global_options"]][:1] == ["json"]
    assert sidestep.json("help", "help")["commands"][0]["options"] == []
    assert sidestep.json("help", "ls")["commands"][0]["options"][0]["letter"] == "a"


def complete_in_bash(sidestep, *words):
    """The completions that bash offers for the last word."""
    script = ('source <("$0" completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _sidestep;'
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, sidestep.program, *words], capture_output=True,
                          text=True, env=sidestep.environment(), cwd=sidestep.folder, check=True)
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def test_bash_completion(sidestep):
    """bash completes commands, options, choices and directories"""
    if not shutil.which("bash"):
        raise Skip("no bash here")
    os.mkdir(sidestep.path("run"))
    for words, expected in [
            (["sidestep", ""], COMMANDS),
            (["sidestep", "l"], ["ls", "latest"]),
            (["sidestep", "-q", "ls", "--a"], ["--all"]),
            (["sidestep", "gc", "--"], ["--json", "--color", "--quiet", "--verbose", "--help",
                                        "--version", "--dry-run", "--yes", "--mirror"]),
            (["sidestep", "--color", "=", "a"], ["auto", "always"]),
            (["sidestep", "--color", "n"], ["never"]),
            (["sidestep", "--color", "=", "never", "sh"], ["show"]),
            (["sidestep", "help", "ve"], ["verify", "version"]),
            (["sidestep", "completion", ""], ["bash", "zsh", "fish"]),
            (["sidestep", "verify", "-j", "3", "r"], ["run"]),
            (["sidestep", "prune", "--keep-last", "3", "r"], ["run"]),
            (["sidestep", "bench", "--mtbf", "=", "6h", "r"], ["run"]),
            (["sidestep", "check", "run", "r"], ["run"]),
            (["sidestep", "cat", "run", ""], [])]:
        assert complete_in_bash(sidestep, *words) == expected, words


def test_completion_of_other_shells(sidestep):
    """zsh and fish accept their scripts"""
    missing = [shell for shell in ("zsh", "fish") if not shutil.which(shell)]
    for shell in {"zsh", "fish"} - set(missing):
        script = sidestep.run("completion", shell).stdout
        subprocess.run([shell, "-n", "/dev/stdin"], input=script.encode(), check=True)
        assert sidestep.json("completion", shell) == {"shell": shell, "script": script}
    if missing:
        raise Skip("no " + " and no ".join(missing) + " here")
