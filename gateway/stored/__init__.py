"""Stored: the names, the events and the parts that the gateway writes into a store, each on one page.

Everything here is a stored format. A change must read what older releases wrote, and raises the form number when an
older release cannot read it (`gateway/store/form.py`). `tests/stored/` pins the text byte for byte.
"""
