"""Work after the reply: memories are filled in lanes of their own, and read by the turns that come later."""
