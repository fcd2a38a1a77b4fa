"""Stored: the names, the events and the parts that the gateway writes into a store, each on one page.

Everything here is a stored format. A change raises the number of the form (`gateway/store/form.py`).
`tests/test_stored_forms.py` pins the text byte for byte.
"""
