"""From a manifest to one policy a shell: defaults, path rules, domains, personas. Nothing here looks at the machine."""
