"""Engines that stand in for a cluster on one machine, and how tests start `fulldeck run` under them."""
