"""Training tools: files, finance, shopping."""

from __future__ import annotations

from unmask.train.tooldata.records import ToolSpec, tool

TOOLS: tuple[ToolSpec, ...] = (
    tool(
        "rename_file",
        "files",
        "file_rename change_filename rename_document",
        "Rename a file.|Give a file a new name.",
        "file:file:path,old_name,source new_name:file:target,to_name,renamed",
        """
        rename {file} to {new_name}
        change the name of {file} to {new_name}
        The file {file} should be called {new_name}
        I want {file} renamed to {new_name}
        rename the file {file} as {new_name}
        Call {file} {new_name} from now on
        """,
        """
        give {file} the new name {new_name}
        My file {file} needs a new name, make it {new_name}
        """,
        result="status==renamed path=@new_name",
        reports="The file is now called {new_name}.\nI renamed {file} to {new_name}.",
    ),
    tool(
        "delete_file",
        "files",
        "remove_file erase_file trash_file",
        "Delete a file.|Remove a file.",
        "file:file:path,filename,target",
        """
        delete {file}
        remove the file {file}
        I don't need {file} anymore, delete it
        get rid of {file}
        erase the file {file}
        Delete the file {file} for me
        """,
        """
        throw {file} in the trash
        The file {file} can go, wipe it
        """,
        result="status==deleted freed_kb=int:20:900",
        reports="I deleted {file}.\n{file} is deleted, {freed_kb} KB are free.",
    ),
    tool(
        "search_files",
        "files",
        "find_files file_search lookup_documents",
        "Search files by keyword.|Find files.",
        "query:topic:keyword,text,about ?type:file_kind:kind,file_type,format",
        """
        find[ {type}] files about {query}
        search my files for {query}[, {type} only]
        Which[ {type}] files do I have about {query}?
        look for[ {type}] files on {query}
        I'm looking for[ {type}] files about {query}
        Do I have any[ {type}] files on {query}?
        """,
        """
        dig through my documents for {query}[, just the {type} ones]
        Where did I save those[ {type}] files about {query}?
        """,
        result="count=int:1:18 best=file",
        reports="I found {count} files, the best match is {best}.",
    ),
    tool(
        "create_folder",
        "files",
        "make_folder new_directory add_folder",
        "Create a folder.|Make a directory.",
        "name:folder:folder,title,folder_name ?parent:folder:inside,location,parent_folder",
        """
        create a folder called {name}[ inside {parent}]
        make a new folder named {name}[ in {parent}]
        I need a folder called {name}[ inside {parent}]
        New folder {name}[ in {parent}]
        add a folder {name}[ inside the folder {parent}]
        Inside {parent}, make a folder named {name}
        """,
        """
        set up a directory by the name of {name}[ within {parent}]
        Could I get a directory {name}[ under {parent}]?
        """,
        result="path=@name status==created",
        reports="I created the folder {name}.\nThe folder {name} is ready.",
    ),
    tool(
        "convert_currency",
        "finance",
        "exchange_money currency_convert fx_convert",
        "Convert between currencies.|Exchange rate conversion.",
        "amount:money:value,sum,how_much from:currency:source,from_currency,base to:currency:target,to_currency,quote",
        """
        convert {amount} {from} to {to}
        How much is {amount} {from} in {to}?
        What is {amount} {from} in {to}?
        exchange {amount} {from} for {to}
        change {amount} {from} into {to}
        I have {amount} {from}, how much is that in {to}?
        """,
        """
        work out what {amount} {from} would be in {to}
        If I swap {amount} {from}, how many {to} do I get?
        """,
        result="result=num:20:950",
        reports="That is {result} {to}.\n{amount} {from} is {result} {to}.",
    ),
    tool(
        "get_stock_price",
        "finance",
        "stock_quote share_price check_stock",
        "Get a stock price.|Share price of a company.",
        "company:company:name,stock,firm",
        """
        What's the stock price of {company}?
        How much is a share of {company}?
        check the {company} stock
        How is {company} stock doing?
        get the share price of {company}
        Stock price for {company}
        """,
        """
        What are {company} shares trading at?
        look up {company} on the stock market
        """,
        result="price=num:12:480 currency==USD",
        reports="{company} trades at {price} {currency}.",
    ),
    tool(
        "transfer_money",
        "finance",
        "send_money make_transfer pay_person",
        "Send money to a person.|Bank transfer.",
        "amount:money:sum,value,how_much recipient:fullname:to,payee,person ?currency:currency:unit,in_currency",
        """
        transfer {amount} to {recipient}
        send {amount} {currency} to {recipient}
        pay {recipient} {amount} {currency}
        I owe {recipient} {amount} {currency}, transfer it
        transfer {amount} {currency} to {recipient}
        make a bank transfer of {amount} {currency} to {recipient}
        """,
        """
        wire {recipient} the sum of {amount} {currency}
        move {amount} {currency} from my account to {recipient}
        """,
        result="status==sent reference=order_id",
        reports="I sent {amount} to {recipient} with reference {reference}.",
    ),
    tool(
        "log_expense",
        "finance",
        "add_expense record_spending track_cost",
        "Log an expense.|Record what was spent.",
        "amount:money:sum,cost,value category:spend:kind,spent_on,group",
        """
        I spent {amount} on {category}, log it
        log an expense of {amount} for {category}
        add {amount} for {category} to my expenses
        record that I spent {amount} on {category}
        Expense: {amount} for {category}
        track {amount} spent on {category}
        """,
        """
        put {amount} down in my budget under {category}
        Another {amount} went to {category}, write it in my budget
        """,
        result="month_total=int:100:2400",
        reports="Logged, you spent {month_total} this month.",
    ),
    tool(
        "add_to_cart",
        "shopping",
        "cart_add put_in_cart basket_add",
        "Add a product to the cart.|Put an item in the basket.",
        "product:product:item,article,product_name ?quantity:count:amount,number,how_many",
        """
        add {product} to my cart[, {quantity} pieces]
        put[ {quantity} units of] the {product} in my shopping cart
        I want to buy {product}[, {quantity} pieces], add it to the cart
        Add to cart: {product}[, {quantity} pieces]
        add {product} to the basket[, quantity {quantity}]
        place[ {quantity} pieces of] {product} in the basket
        """,
        """
        toss the {product} into my cart[, {quantity} of them]
        My cart still needs the {product}[, quantity {quantity}]
        """,
        result="items=int:1:9 total=num:12:240",
        reports="Your cart now has {items} items for {total}.",
    ),
    tool(
        "search_products",
        "shopping",
        "product_search find_products shop_search",
        "Search products in the shop.|Find things to buy.",
        "query:product:item,keyword,product ?max_price:money:price_limit,budget,under",
        """
        search the shop for {query}[ under {max_price} dollars]
        find me {query} to buy[ for less than {max_price} dollars]
        What {query} do you sell[ under {max_price} dollars]?
        I'm shopping for {query}[, at most {max_price} dollars]
        show me {query}[ for under {max_price} dollars]
        Do you have {query}[ below {max_price} dollars]?
        """,
        """
        My budget is {max_price} dollars, which {query} can I buy?
        browse the store for {query}[ up to {max_price} dollars]
        """,
        result="name=product price=num:9:200",
        reports="I found {name} for {price} dollars.",
    ),
    tool(
        "track_order",
        "shopping",
        "order_status where_is_order check_order",
        "Track an order.|Get the status of an order.",
        "order_id:order_id:order,number,order_number",
        """
        Where is my order {order_id}?
        track order {order_id}
        What's the status of order {order_id}?
        Has order {order_id} shipped?
        check on my order {order_id}
        When will order {order_id} arrive?
        """,
        """
        I'm still waiting for {order_id}, any update?
        see how far along {order_id} is
        """,
        result="status=parcel arrives=date",
        reports="Your order is {status} and arrives on {arrives}.",
    ),
    tool(
        "write_review",
        "shopping",
        "add_review rate_product post_rating",
        "Rate a product with stars.|Post a product rating.",
        "product:product:item,what,article stars:stars:rating,score,points",
        """
        give the {product} {stars} stars
        rate the {product} {stars} stars
        I'd give the {product} {stars} stars, post it
        post a rating of {stars} stars for the {product}
        Review: {stars} stars for the {product}
        leave {stars} stars for the {product}
        """,
        """
        My score for the {product} is {stars} stars
        submit {stars} stars as my opinion on the {product}
        """,
        result="status==posted average=num:2:5",
        reports="Your rating is posted, the average is {average} stars.",
    ),
)
