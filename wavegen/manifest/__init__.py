"""From YAML to a checked manifest: nodes with places, the decoder, the model, its JSON schema."""
