"""Engines that emulate a cluster on one machine, and how tests start `fulldeck run` under them."""
