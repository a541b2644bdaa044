"""Where clouds hand out the machine's credentials, by name and by address. Data.

Whoever reaches one of these from a machine in a cloud is that machine: they are let through only by an entry of their own with allow_private.
"""

METADATA_NAMES = ("metadata.google.internal", "metadata.goog", "metadata", "instance-data.ec2.internal", "instance-data")
PROBED_ADDRESSES = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16")
"""Those that probes try: link-local, IPv6, carrier range and public range."""
METADATA_NETWORKS = (
    "169.254.169.254/32",  # nearly every cloud
    "169.254.170.2/32",  # Amazon ECS
    "169.254.170.23/32",  # Amazon EKS
    "169.254.169.123/32",  # Amazon's clock
    "169.254.42.42/32",  # Scaleway
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's wire server, in a public range
    "192.0.0.192/32",  # Oracle
    "fd00:ec2::/32",  # Amazon
    "fd20:ce::254/128",  # Google
    "fd00:c1::a9fe:a9fe/128",  # Oracle
    "fd00:42::42/128",  # Scaleway
    "fd00:a9fe:a9fe::1/128",  # OpenStack
    "fd00:100::100:200/128",  # Alibaba
)
