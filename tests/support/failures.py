"""Reports that a test has failed, in one line that .ci/run collects at its end. All runners use
this."""
import traceback

MARK = "---- FAILED"
LINES_MAX = 8  # of one reason
CHARACTERS_MAX = 600


def in_one_line(text):
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return " | ".join([line for line in lines if line.strip("=-.")][:LINES_MAX])[:CHARACTERS_MAX]


def say(name, reason, details=""):
    print("\n%s %s: %s" % (MARK, name, in_one_line(reason)))
    print(details, end="\n" if details else "", flush=True)


def reason_of(error):
    """Returns where in the test an exception was raised, and its text."""
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if "__unittest" not in frame.f_globals:
            where = "%s:%d: " % (frame.f_code.co_filename.rpartition("/")[2], line)
    return "%s%s: %s" % (where, type(error).__name__, error)
