"""What belongs to the project and to no sandbox: plan.json with its neighbours, and the flake."""
