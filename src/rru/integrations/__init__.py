"""RRUs inside other libraries, one module for each: `rru.integrations.sklearn`, `sktime`, `neuralforecast`, `darts`.

Each needs its library, which the extra of the same name installs: `pip install 'rru[sktime]'`. None is imported before
it is used. Plain layers need no module: see docs/integrations.md for skorch and Lightning.
"""
