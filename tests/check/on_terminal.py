# SPDX-License-Identifier: Apache-2.0
#
# run(): start a program with a terminal as standard output or standard error, and return the output.
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading

END = b"\0the program has ended\0"


def run(words, stream, columns, **more):
    """Return (exit code, bytes received, with plain newlines). 'stream' is "stdout" or "stderr"; 'more' is passed to
    Popen.

    The terminal stays open here until the mark behind the output has arrived: some kernels drop the end of the output
    when the last program that has the terminal open closes it.
    """
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, **{stream: terminal}, **more)

    def write_mark():
        child.wait()
        os.write(terminal, END)

    marker = threading.Thread(target=write_mark)
    marker.start()
    received = b""
    while not received.endswith(END):
        received += os.read(reader, 65536)
    marker.join()
    os.close(terminal)
    os.close(reader)
    return child.returncode, received[:-len(END)].replace(b"\r\n", b"\n")
