"""A person at a terminal: starts a command there, waits for words on the screen and presses keys.

    keyboard.py WORDS KEYS [WORDS KEYS]... -- COMMAND ARGUMENT...

Prints everything that was on the screen and ends as the command did. Words that do not come within a minute are a failure.
"""
import os
import pty
import select
import sys
import time

split = sys.argv.index("--")
steps = list(zip(sys.argv[1:split:2], sys.argv[2:split:2]))
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[split + 1], sys.argv[split + 1:])
screen, mark, until = b"", 0, time.monotonic() + 60
while True:
    if steps:
        words, keys = steps[0]
        found = screen.find(words.encode(), mark)
        if found >= 0:
            mark, until = found + len(words), time.monotonic() + 60
            os.write(terminal, keys.encode())
            steps.pop(0)
            continue
    if time.monotonic() > until:
        break
    if select.select([terminal], [], [], 0.5)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        screen += piece
sys.stdout.write(screen.decode(errors="replace"))
if steps or time.monotonic() > until:
    sys.stdout.write(f"\nKEYBOARD: not seen: {steps}\n")
    os.kill(pid, 9)
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 99)
