"""The blade's status filter with Gleaner before it. See gleaner_tractor.py beside it.

Without that file it is the blade's own filter and nothing else.
"""

from tractor.apps.blade.TrStatusFilter import TrStatusFilter

try:
    from gleaner_tractor import Gleaner
except Exception:

    class Gleaner(object):
        pass


class TractorSiteStatusFilter(Gleaner, TrStatusFilter):
    def __init__(self):
        # The blade's own filters reach the class below them through this name.
        self.super = super(TractorSiteStatusFilter, self)
        self.super.__init__()
