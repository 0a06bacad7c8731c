"""Records and journals as they are stored: read, continued, replayed, and refused where they were changed."""
