"""A release: licences, known vulnerabilities, the bill of materials and archives."""
