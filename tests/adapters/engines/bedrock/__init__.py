"""Tests of Bedrock's dialect."""
