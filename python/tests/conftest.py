"""What all tests need of the process that they run in."""

import signal

# A shell starts jobs in the background with SIGINT ignored, and children inherit that: then no test of Ctrl-C could pass.
signal.signal(signal.SIGINT, signal.default_int_handler)
