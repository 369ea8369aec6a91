"""NEXMark: people, auctions and bids of an auction site, and eight queries on three engines."""
