"""Work after the reply: memories are filled in separate lanes, and read by later turns."""
