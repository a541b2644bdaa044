"""Where the network of a shell is answered inside. Data."""

HTTP_PORT, SOCKS_PORT, DNS_PORT = 3128, 1080, 53
PROXY_PORTS = (DNS_PORT, SOCKS_PORT, HTTP_PORT)
"""No port of the host's loopback can be let in under these numbers."""
