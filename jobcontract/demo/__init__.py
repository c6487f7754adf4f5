"""`jobctl demo`: the main job of this library on real input, with a worker that is killed in the middle.

What it shows is counted from the application's own tables, not claimed: every document is registered in one
transaction with its row, two worker processes extract its terms, one of them dies by ``kill -9``, and in the
end no result is missing and none is there twice.
"""
