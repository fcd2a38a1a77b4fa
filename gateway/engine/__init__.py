"""Engine: the work of a bot under leases, from the intake of events to the delivery of replies."""
