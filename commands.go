package crawlgate

import _ "github.com/crawlgate/crawlgate/cli" // its commands register themselves
