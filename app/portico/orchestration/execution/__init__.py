"""One execution: context, effects, recorder, ledger."""
