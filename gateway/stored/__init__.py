"""Stored: the names, the events and the parts written into a store by the gateway, each in a module.

Everything here is a stored format. A change raises the number of the form (`gateway/store/form.py`).
`tests/test_stored_forms.py` pins the text byte for byte.
"""
