"""Test beds on real parts: private container runtimes, kubelets and the proxy between them.

Everything here needs only the Python standard library of Debian 12.
"""
