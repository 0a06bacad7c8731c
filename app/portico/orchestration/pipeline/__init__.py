"""The stages that prepare an execution, in the order of the pipeline seed."""
