"""AG-UI, the protocol of agents behind user interfaces such as CopilotKit's."""
