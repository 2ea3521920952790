"""Data in the forms of other programs: NetCDF and VTU files, datasets of xarray, pandas tables."""
